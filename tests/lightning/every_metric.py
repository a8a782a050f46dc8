"""What the metrics need that cannot be made from a name alone, as a YAML file has it."""

COUNTS = {"item_counts": [3, 2, 1]}
CATEGORIES = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
OPTIONS = {
    "coverage": {"num_items": 3},
    "gini": {"num_items": 3},
    "entropy": {"num_items": 3},
    "personalization": {"num_items": 3},
    "novelty": {**COUNTS, "num_users": 3},
    "popularity": COUNTS,
    "tail_share": COUNTS,
    "unexpectedness": COUNTS,
    "serendipity": COUNTS,
    "ils": {"item_features": CATEGORIES},
    "intra_list_diversity": {"item_features": CATEGORIES},
    "category_diversity": {"item_categories": [[1, 0], [0, 1], [1, 1]]},
    "category_calibration": {"item_categories": [[1, 0], [0, 1], [1, 1]], "profiles": CATEGORIES},
}
