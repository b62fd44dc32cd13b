"""What push remembers, in five stores that may be five servers (P6).

Each is a protocol here, by what is asked of it; `sqlite/` and `redis/` are two ways to keep it. All
take many at once where many come at once. Every method raises StorageError when the store cannot do
what is asked; a change that raised may have happened, and may be made again.
"""
