"""What people see: tables, figures, JSON. All of it takes records; a view is data before it is text or a picture."""
