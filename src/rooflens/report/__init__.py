"""What people see: tables, figures, JSON. Everything here takes records; a view is data before it is text or a picture."""
