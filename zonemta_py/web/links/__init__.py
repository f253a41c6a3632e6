"""The listener for links in mail: one-click unsubscribes (RFC 8058), and pages for people."""
