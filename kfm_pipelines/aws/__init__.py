"""SNS, SQS and S3: clients, error translation, queues, and the wiring between them."""
