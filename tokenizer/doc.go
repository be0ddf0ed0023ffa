// Package tokenizer turns text into token ids and back, exactly as the Hugging Face
// tokenizers library does for the same tokenizer.json.
//
// [Load] reads tokenizer.json and, where it lies beside it, tokenizer_config.json.
// Supported are the BPE (byte-level, byte-fallback, with word suffixes), WordPiece,
// WordLevel and Unigram models with the library's normalizers, pre-tokenizers,
// post-processors and decoders; what is not supported is refused by name with
// [ErrUnsupported], never approximated.
//
// The settings "truncation" and "padding" of tokenizer.json are not applied: cutting and
// filling batches is the caller's business, as in transformers.
//
// A [Tokenizer] is immutable and safe for concurrent use. [Stream] decodes ids one by
// one and never emits half a character.
package tokenizer
