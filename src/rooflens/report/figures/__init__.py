"""Rooflines as data, the page on which they are set, and what draws them: matplotlib and plotly."""
