"""Where rows are kept."""
