"""What gets installed, and how."""
