"""The keeper: a process that holds what the workers of one machine share."""
