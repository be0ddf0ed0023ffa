package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// commands walks the tree of commands that people see, leaving out what cobra
// adds.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" && !sub.Hidden {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

// TestHelp: every command explains itself, with examples that it understands.
func TestHelp(t *testing.T) {
	a := &app{out: &output{}, err: os.Stderr}
	root := a.root()
	seen := map[string]bool{}
	for _, c := range commands(root) {
		assert.NotEmpty(t, c.Short, c.CommandPath())
		for line := range strings.Lines(c.Long) {
			assert.LessOrEqual(t, len([]rune(line)), 90, "%s: %s", c.CommandPath(), line)
		}
		if c.HasSubCommands() && c != root && c.Name() != "config" {
			continue
		}
		assert.NotEmpty(t, c.Example, c.CommandPath())
		for line := range strings.Lines(c.Example) {
			_, call, ok := strings.Cut(strings.TrimSpace(line), "lorafuse ")
			if !ok {
				continue
			}
			words := split(call)
			sub, rest, err := a.root().Find(words)
			require.NoError(t, err, line)
			require.True(t, sub.HasParent(), line)
			assert.NoError(t, sub.ParseFlags(rest), line)
			seen[sub.Name()] = true
		}
		if c != root && c.Name() != "serve" {
			assert.NotNil(t, c.Flags().Lookup("json"), "%s has no --json", c.CommandPath())
		}
		help := succeed(t, append(strings.Fields(strings.TrimPrefix(c.CommandPath(), "lorafuse")), "--help")...)
		assert.Contains(t, help, "Examples:")
		assert.Contains(t, help, "Usage:\n  "+c.CommandPath())
	}
	for _, name := range []string{"train", "generate", "serve", "embed", "eval", "merge", "inspect", "convert", "diff", "compare", "tokenize", "devices", "health", "version", "download", "config", "load", "kernels", "layer", "step", "decode", "upload", "validate"} {
		assert.True(t, seen[name], name)
	}
	assert.Contains(t, succeed(t), "Exit status:")
	assert.Equal(t, succeed(t), succeed(t, "help"))
	assert.Equal(t, succeed(t, "merge", "--help"), succeed(t, "help", "merge"))
}

// split takes a command line apart; a pipe or a redirection ends it.
func split(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	flush := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && (r == ' '):
			flush()
		case quote == 0 && (r == '|' || r == '>'):
			return words
		default:
			word.WriteRune(r)
		}
	}
	flush()
	return words
}

func TestVersionAndDevices(t *testing.T) {
	v := decode[buildVersion](t, succeed(t, "version", "--json"))
	assert.NotEmpty(t, v.Version)
	assert.Regexp(t, `^lorafuse \S+, go\S+, \w+/\w+\n$`, succeed(t, "version"))
	d := decode[deviceList](t, succeed(t, "devices", "--json"))
	assert.Equal(t, backend.CPU, d.Devices[len(d.Devices)-2].Backend, "null comes last")
	assert.Contains(t, succeed(t, "devices"), "cpu:0  ")
	keys := decode[[]configKey](t, succeed(t, "config", "adapter", "--json"))
	assert.Greater(t, len(keys), 10)
	assert.Contains(t, keys, configKey{"adapter.r", "a whole number", nil, keys[slices.IndexFunc(keys, func(k configKey) bool { return k.Path == "adapter.r" })].Range, "8", false, "Rank of the adapter."})
	assert.Greater(t, len(decode[[]configKey](t, succeed(t, "config", "--json"))), 100)
}

// TestPanic: a mistake of ours is one line as well.
func TestPanic(t *testing.T) {
	var errs strings.Builder
	status := Run(t.Context(), []string{"devices"}, strings.NewReader(""), nil, &errs)
	assert.Equal(t, ExitFailure, status)
	assert.Regexp(t, `^lorafuse: internal error: .*\n$`, errs.String())
}
