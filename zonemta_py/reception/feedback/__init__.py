"""What comes back over SMTP: bounces, complaints and unsubscribes at addresses of ours, and nothing else."""
