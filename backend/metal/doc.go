// Package metal will hold the backend for Apple GPUs: a device of package
// backend on Metal for macOS builds with cgo, which wraps the pages of a mapped
// checkpoint instead of copying them. Nothing is here yet: no build registers
// it, and asking for it is an error that says so.
package metal
