"""Train or validate: ``python -m examples.ctr fit --config configs/ctr_fm.yaml``."""

from examples.ctr.cli import main

if __name__ == "__main__":
    main()
