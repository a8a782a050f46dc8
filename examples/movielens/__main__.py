"""Train or validate a recommender: ``python -m examples.movielens fit --config configs/movielens_mf.yaml``."""

from examples.movielens.cli import main

if __name__ == "__main__":
    main()
