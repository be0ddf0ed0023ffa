// Package remote reads safetensors files over HTTP, a tensor at a time, with
// range requests.
//
// [Open] asks for the first 64 KiB of a file, and once more where its header is
// longer; after that, what is asked for are the bytes of the tensors that are
// read. Large reads are split into ranges that are fetched at the same time.
//
// The file is the one that was opened, or an error: every request names its
// entity tag (or the date of its last change), and an answer that is of another
// version, of another place or of another length than what was asked for is
// refused. A request that fails for a reason that may pass is repeated, from
// the byte where it broke off.
package remote
