"""The disk tier of the prefix cache: segment files, who reads and writes them, and how long that takes (DT)."""
