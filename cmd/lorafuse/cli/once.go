package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errTwice is the error for a single-valued flag that is given twice.
var errTwice = errors.New("given twice")

// once is the value of a flag that may be given once: the last of two would
// silently win.
type once struct {
	pflag.Value
	name  string
	given bool
	first string
}

func (o *once) Set(s string) error {
	if o.given {
		return fmt.Errorf("--%s: %w, %q and then %q, expected once", o.name, errTwice, o.first, s)
	}
	o.given, o.first = true, s
	return o.Value.Set(s)
}

// onlyOnce lets all flags of a command and of those below it that take a single
// value be given once.
func onlyOnce(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, many := f.Value.(pflag.SliceValue); !many {
			f.Value = &once{Value: f.Value, name: f.Name}
		}
	})
	for _, sub := range c.Commands() {
		onlyOnce(sub)
	}
}
