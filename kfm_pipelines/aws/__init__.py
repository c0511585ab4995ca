"""SNS and SQS: the clients, the wiring, and everything that sends, receives or sets aside a message."""
