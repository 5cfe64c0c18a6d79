"""Who is there: frontends, workers, and which requests each of them knows."""
