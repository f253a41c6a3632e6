"""The HTTP listener: mail and batches of campaigns as JSON, campaign orders, the suppression list. A process of its own
(`server`); config/openapi.json, generated from `app`, describes its interface."""
