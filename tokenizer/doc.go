// Package tokenizer converts text to token ids and back, exactly as the Hugging Face
// tokenizers library does for the same tokenizer.json.
//
// [Load] reads tokenizer.json and, if the folder has one, tokenizer_config.json. It
// supports the BPE (byte-level, byte-fallback, with word suffixes), WordPiece, WordLevel
// and Unigram models with the library's normalizers, pre-tokenizers, post-processors and
// decoders. Unsupported components are rejected by name with [ErrUnsupported], never
// approximated.
//
// The settings "truncation" and "padding" of tokenizer.json are ignored: truncating and
// padding batches is up to the caller, as in transformers.
//
// A [Tokenizer] is immutable and safe for concurrent use. A [Stream] decodes ids one by
// one and never returns part of a character.
package tokenizer
