"""What monitoring asks the HTTP listener for."""
