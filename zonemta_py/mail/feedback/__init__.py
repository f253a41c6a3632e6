"""What comes back for a message: bounces, complaints, auto-replies, unsubscribes; read, not believed."""
