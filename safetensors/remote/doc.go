// Package remote reads safetensors files over HTTP with range requests, one
// tensor at a time.
//
// [Open] requests the first 64 KiB of a file, and the rest of its header if it
// is longer. After that it requests only the bytes of the tensors that are
// read. Large reads are split into ranges that are fetched concurrently.
//
// All bytes come from the version of the file that was opened, or the read
// fails. Every request contains the entity tag (or the date of the last
// change), and a response with another version, offset or length is rejected.
// Requests that fail with a temporary error are repeated from the byte at which
// they broke off.
package remote
