package dit

// Nothing is the checkpoint that Modules builds with.
type Nothing = blank
