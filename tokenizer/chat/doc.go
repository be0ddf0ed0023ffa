// Package chat renders conversations with the chat template of a model, byte for byte as
// transformers' apply_chat_template does.
//
// Chat templates are written in Jinja, with Python's strings, lists and dictionaries
// underneath. The package has its own interpreter of the part of Jinja that transformers
// offers to templates: all expressions, filters and tests that make sense in text,
// for (with break and continue, recursive too), if, set, macro, call, filter, with, raw and
// generation. Templates that inherit from or include others do not exist there and are
// refused, as is every unknown filter, test and tag, by name, with [ErrTemplate].
//
// Like transformers the package leaves out message fields that are null and offers the
// reasoning of a message under its usual names; see [Message].
//
// Content given as a list of parts must be text. As in vLLM, templates that loop over parts get
// the list, and others get the texts joined by newlines; a template that reads nothing but parts
// gets a string as one part. transformers would show Python's text of the list instead.
package chat
