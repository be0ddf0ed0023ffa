package serve

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// shapeRequest holds the fields that constrain answers.
type shapeRequest struct {
	Format *struct {
		Type   string `json:"type" one:"text|json_object|json_schema"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Outputs struct {
		Schema json.RawMessage `json:"json"`
		Object bool            `json:"json_object"`
		Regex  *string         `json:"regex"`
		Choice []string        `json:"choice" expected:"a list of strings"`
	} `json:"structured_outputs"`
	Guided       json.RawMessage `json:"guided_json"`
	GuidedRegex  *string         `json:"guided_regex"`
	GuidedChoice []string        `json:"guided_choice" expected:"a list of strings"`
}

// answerShape is a constraint of answers.
type answerShape struct {
	name  string // of the constraint
	field string // of the grammar
	grammarSource
}

// grammarSource is the source of a grammar.
type grammarSource struct {
	kind sourceKind
	text string
}

// sourceKind is the language of a grammar's source.
type sourceKind int

const (
	anyJSON    sourceKind = iota // no source: any JSON object
	jsonSchema                   // JSON Schema
	regex                        // a regular expression
	choice                       // a JSON list of texts
)

// compile returns the grammar.
func (g grammarSource) compile() (*constrain.Grammar, error) {
	switch g.kind {
	case jsonSchema:
		return constrain.Schema([]byte(g.text))
	case regex:
		return constrain.Regex(g.text)
	case choice:
		var texts []string
		if err := json.Unmarshal([]byte(g.text), &texts); err != nil {
			return nil, err
		}
		return constrain.Choice(texts)
	}
	return constrain.JSON(), nil
}

// schemaSource returns the source of a JSON Schema in a field, which holds it as an object or as text.
func schemaSource(raw json.RawMessage) grammarSource {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return grammarSource{jsonSchema, text}
	}
	return grammarSource{jsonSchema, string(raw)}
}

// choiceShape returns the constraint to one of several texts, in the field name.
func choiceShape(name string, texts []string) (answerShape, error) {
	if len(texts) == 0 || slices.Contains(texts, "") {
		return answerShape{}, web.Faulty(name, "expected one or more strings, none of them empty")
	}
	list, err := json.Marshal(texts)
	return answerShape{name, name, grammarSource{choice, string(list)}}, err
}

// formatShape returns the constraint of an OpenAI format in the field name. field is that of its schema.
func formatShape(name, field, kind string, schema json.RawMessage) ([]answerShape, error) {
	switch {
	case kind == "":
		return nil, web.Faulty(name+".type", "is missing, expected text, json_object or json_schema")
	case kind == "json_object":
		return []answerShape{{name: name}}, nil
	case kind == "json_schema" && schema == nil:
		return nil, web.Faulty(field, "is missing")
	case kind == "json_schema":
		return []answerShape{{name, field, schemaSource(schema)}}, nil
	}
	return nil, nil
}

// shapes returns the constraints of a request.
func (r *shapeRequest) shapes() (all []answerShape, err error) {
	if f := r.Format; f != nil {
		if all, err = formatShape("response_format", "response_format.json_schema.schema", f.Type, f.Schema.Schema); err != nil {
			return nil, err
		}
	}
	if r.Outputs.Schema != nil {
		all = append(all, answerShape{"structured_outputs.json", "structured_outputs.json", schemaSource(r.Outputs.Schema)})
	}
	if r.Outputs.Object {
		all = append(all, answerShape{name: "structured_outputs.json_object"})
	}
	if r.Guided != nil {
		all = append(all, answerShape{"guided_json", "guided_json", schemaSource(r.Guided)})
	}
	for _, x := range []struct {
		name    string
		pattern *string
	}{{"structured_outputs.regex", r.Outputs.Regex}, {"guided_regex", r.GuidedRegex}} {
		if x.pattern != nil {
			all = append(all, answerShape{x.name, x.name, grammarSource{regex, *x.pattern}})
		}
	}
	for _, x := range []struct {
		name  string
		texts []string
	}{{"structured_outputs.choice", r.Outputs.Choice}, {"guided_choice", r.GuidedChoice}} {
		if x.texts != nil {
			shape, err := choiceShape(x.name, x.texts)
			if err != nil {
				return nil, err
			}
			all = append(all, shape)
		}
	}
	return all, nil
}

// shape returns the grammar that constrains the answers, or nil if the request asks for none.
func (s *Server) shape(ctx context.Context, r *shapeRequest, more []answerShape) (*constrain.Grammar, error) {
	all, err := r.shapes()
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	switch {
	case len(all) == 0:
		return nil, nil
	case len(all) > 1:
		return nil, web.Faulty(all[1].name, "the answer is kept to %s already", all[0].name)
	}
	g, err := s.grammars.of(ctx, all[0].grammarSource)
	if err != nil {
		return nil, grammarFailure(all[0].field, err)
	}
	return g, nil
}

// grammarFailure returns the failure for an error of grammars.of.
func grammarFailure(field string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return web.Faulty(field, "%v", err)
}

const (
	maxGrammars  = 64       // cached grammars
	maxKept      = 64 << 10 // bytes of the source of a cached grammar
	maxKeptBytes = 64 << 20 // total bytes of cached grammars
)

// grammars compiles grammars and caches the latest, since clients repeat their schemas. It compiles
// one at a time to limit memory.
type grammars struct {
	compiling chan struct{} // semaphore: one grammar at a time

	mu       sync.Mutex
	bySource map[grammarSource]*constrain.Grammar
	bytes    int // of grammars
}

// of returns the grammar of a source. It waits for other compilations until ctx is done.
func (k *grammars) of(ctx context.Context, source grammarSource) (*constrain.Grammar, error) {
	if g := k.known(source); g != nil {
		return g, nil
	}
	select {
	case k.compiling <- struct{}{}:
		defer func() { <-k.compiling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g := k.known(source); g != nil { // compiled by a concurrent request
		return g, nil
	}
	g, err := source.compile()
	if err != nil || len(source.text) > maxKept || g.Bytes() > maxKeptBytes {
		return g, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bySource == nil || len(k.bySource) == maxGrammars || k.bytes+g.Bytes() > maxKeptBytes {
		k.bySource, k.bytes = map[grammarSource]*constrain.Grammar{}, 0
	}
	k.bySource[source] = g
	k.bytes += g.Bytes()
	return g, nil
}

func (k *grammars) known(source grammarSource) *constrain.Grammar {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bySource[source]
}
