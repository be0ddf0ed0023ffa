package lora

import (
	"fmt"
	"strings"
)

// CheckPlain returns ErrUnsupported, with the names, unless all of an adapter is products B·A that
// are added to linear layers. what names the files that cannot hold more.
func (p *Placement) CheckPlain(what string) error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, s := range p.Saved {
		add("modules_to_save: %s", s.Name)
	}
	for _, m := range p.Biases {
		add("bias: %s", m.Name)
	}
	for _, t := range p.Tokens {
		add("trainable_token_indices: %s", t.Name)
	}
	for _, t := range p.Targets {
		switch {
		case t.Method() != MethodLoRA:
			add("%s: %s", t.Method(), t.Name)
		case t.LoraBias:
			add("lora_bias: %s", t.Name)
		case t.MutatesBase():
			add("init_lora_weights %q: %s", t.Init, t.Name)
		case t.Kind != Linear:
			add("%s: %s", t.Kind, t.Name)
		case t.TiedTo != "":
			add("head tied to the embedding: %s", t.Name)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	const most = 4
	more := ""
	if len(problems) > most {
		more = fmt.Sprintf(" and %d more", len(problems)-most)
		problems = problems[:most]
	}
	return fmt.Errorf("%w: %s hold only A and B of linear layers, found %s%s; lorafuse merge writes a model with all of the adapter", ErrUnsupported, what, strings.Join(problems, ", "), more)
}
