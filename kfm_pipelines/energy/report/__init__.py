"""What pipelines cost by dataset and month: as values, as a picture, and as a page."""
