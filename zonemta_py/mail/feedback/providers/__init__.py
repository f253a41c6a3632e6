"""What mail providers tell in forms of their own: webhooks, their signatures, notifications by mail."""
