"""The list of packages, which pyproject.toml cannot say: the folder plugins is installed as zonemta_py.plugins."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["zonemta_py*"]), "zonemta_py.plugins"],
    package_dir={"zonemta_py.plugins": "plugins"},
)
