package web

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"
)

// Field describes a request field that OpenAI, vLLM, SGLang, llama.cpp, TGI, Ollama or
// another compatible server supports and this endpoint does not.
type Field struct {
	off  []any  // values that leave the feature off; null always does
	with string // the field that turns the feature on; if that is off, this one is too
	hint string // follows "not supported" in the error message
	noOp bool   // no value of the field affects an answer
}

// Off returns a field that is accepted only with one of the values, given as JSON.
func Off(values ...string) Field {
	var f Field
	for _, text := range values {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			panic(err) // a mistake in the table
		}
		f.off = append(f.off, v)
	}
	return f
}

// Needs sets the field that turns the feature on.
func (f Field) Needs(field string) Field { f.with = field; return f }

// Instead sets the hint of the error message.
func (f Field) Instead(hint string) Field { f.hint = hint; return f }

// NoOp is a field that is accepted and ignored, since it affects only accounting, caching or speed.
var NoOp = Field{noOp: true}

// isOff reports whether the value of a field leaves its feature off. values holds the object that
// contains the field.
func (f Field) isOff(raw json.RawMessage, values map[string]json.RawMessage, table map[string]Field) bool {
	var v any
	if f.noOp || json.Unmarshal(raw, &v) != nil || v == nil {
		return true
	}
	for _, x := range f.off {
		if reflect.DeepEqual(v, x) {
			return true
		}
	}
	if feature, ok := values[f.with]; ok {
		return table[f.with].isOff(feature, values, table)
	}
	return false
}

// checkUnread refuses unread fields that would affect the answer, and logs unknown names.
func (c *Call) checkUnread(objects []unread) *Failure {
	for _, o := range objects {
		for _, name := range o.names {
			full := o.within + name
			field, known := c.api.Unsupported[full]
			switch {
			case !known:
				c.api.unknown.log(c, full)
			case !field.isOff(o.values[name], o.values, c.api.Unsupported):
				return Faulty(full, "not supported%s", field.hint)
			}
		}
	}
	return nil
}

// unknownFields remembers the names of request fields that have been logged.
type unknownFields struct {
	mu    sync.Mutex
	names map[string]bool
}

// maxUnknown is the maximum number of names to log, since clients choose them.
const maxUnknown = 256

// log logs a name that has not been logged before.
func (u *unknownFields) log(c *Call, name string) {
	if len(name) > 100 {
		name = Brief([]byte(name))
	}
	u.mu.Lock()
	if u.names[name] || len(u.names) == maxUnknown {
		u.mu.Unlock()
		return
	}
	if u.names == nil {
		u.names = map[string]bool{}
	}
	u.names[name] = true
	u.mu.Unlock()
	c.api.Logger.Warn("unknown request field is ignored", slog.String("field", name), slog.String("path", c.Request.URL.Path), slog.String("id", c.ID))
}
