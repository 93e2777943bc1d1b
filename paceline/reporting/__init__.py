"""Reports: pages, figures and tables made from records."""
