"""Templates of campaigns and of messages with fields: as JSON, prepared, checked and filled in beside this process."""
