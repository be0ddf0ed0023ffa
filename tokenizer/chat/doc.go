// Package chat renders conversations with the chat template of a model, byte for byte as
// transformers' apply_chat_template does.
//
// Chat templates are written in Jinja, with the semantics of Python's strings, lists and
// dictionaries. The package has its own interpreter for the part of Jinja that transformers
// supports in templates: all expressions, filters and tests that make sense in text, and the
// tags for (with break, continue and recursive), if, set, macro, call, filter, with, raw and
// generation. As in transformers, templates cannot inherit from or include others. Such tags,
// and unknown filters, tests and tags, are rejected by name with [ErrTemplate].
//
// Like transformers, the package omits message fields that are null. It offers the reasoning of
// a message under its usual names; see [Message].
//
// Content given as a list of parts must be text. As in vLLM, templates that loop over parts get
// the list, and others get the texts joined by newlines; a template that reads nothing but parts
// gets a string as one part. transformers would show Python's text of the list instead.
package chat
