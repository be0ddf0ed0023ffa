// Package image does what a Dockerfile says without Docker, as far as the
// project's own needs it: it reads the file, knows what .dockerignore leaves of
// a folder, and takes the steps of a stage one by one.
//
// It is how machines without a container engine, CI among them, find out that
// the images can be built and that their programs start. Base images are not
// fetched: steps run with the tools of this machine, in a folder that stands for
// the image's root.
package image

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrSyntax is the error of a Dockerfile that says something else than this
// package understands.
var ErrSyntax = errors.New("unknown Dockerfile syntax")

// File is a Dockerfile.
type File struct{ Stages []*Stage }

// Stage is what stands below one FROM.
type Stage struct {
	Name     string // behind AS
	From     string // a base image, or the name of a stage
	Platform string // of --platform, with its variable
	Steps    []Step
}

// Step is one instruction.
type Step struct {
	Line  int
	Name  string            // such as COPY
	Flags map[string]string // such as from
	Text  string            // without name and flags
	Words []string          // of Text: a JSON list, or what blanks divide
	List  bool              // Text is a JSON list
}

// instructions are those that are understood below FROM, with their flags.
var instructions = map[string][]string{
	"ARG": nil, "WORKDIR": nil, "COPY": {"from", "chown"}, "RUN": nil, "ENV": nil, "USER": nil, "EXPOSE": nil,
	"HEALTHCHECK": {"interval", "timeout", "start-period", "retries"}, "ENTRYPOINT": nil, "CMD": nil,
}

// Parse reads a Dockerfile. Errors: ErrSyntax, with the line.
func Parse(r io.Reader) (*File, error) {
	f := &File{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, at := strings.TrimSpace(lines.Text()), n
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for strings.HasSuffix(line, `\`) && lines.Scan() {
			n++
			if next := strings.TrimSpace(lines.Text()); !strings.HasPrefix(next, "#") {
				line = strings.TrimSuffix(line, `\`) + " " + next
			}
		}
		if err := f.add(at, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if len(f.Stages) == 0 {
		return nil, fmt.Errorf("%w: no FROM", ErrSyntax)
	}
	return f, nil
}

// add takes one instruction in.
func (f *File) add(line int, text string) error {
	name, rest, _ := strings.Cut(text, " ")
	s := Step{Line: line, Name: strings.ToUpper(name), Flags: map[string]string{}}
	known, ok := instructions[s.Name]
	switch {
	case s.Name == "FROM":
		known = []string{"platform"}
	case !ok:
		return fmt.Errorf("%w: found %q, expected one of FROM, ARG, WORKDIR, COPY, RUN, ENV, USER, EXPOSE, HEALTHCHECK, ENTRYPOINT, CMD", ErrSyntax, name)
	case len(f.Stages) == 0:
		return fmt.Errorf("%w: %s before the first FROM", ErrSyntax, s.Name)
	}
	for rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "--"); rest = strings.TrimSpace(rest) {
		var flag string
		flag, rest, _ = strings.Cut(rest, " ")
		key, value, ok := strings.Cut(flag[2:], "=")
		if !ok || !slices.Contains(known, key) {
			return fmt.Errorf("%w: %s: flag %q", ErrSyntax, s.Name, flag)
		}
		s.Flags[key] = value
	}
	if s.Text = rest; rest == "" {
		return fmt.Errorf("%w: %s of nothing", ErrSyntax, s.Name)
	}
	if s.Name == "FROM" {
		return f.begin(s)
	}
	if s.Name == "HEALTHCHECK" {
		cmd, command, _ := strings.Cut(rest, " ")
		if rest = strings.TrimSpace(command); cmd != "CMD" || rest == "" {
			return fmt.Errorf("%w: HEALTHCHECK of %q, expected CMD", ErrSyntax, s.Text)
		}
	}
	if strings.HasPrefix(rest, "[") {
		if err := json.Unmarshal([]byte(rest), &s.Words); err != nil {
			return fmt.Errorf("%w: %s: the list %s: %w", ErrSyntax, s.Name, rest, err)
		}
		s.List = true
	} else {
		s.Words = strings.Fields(rest)
	}
	if err := s.check(); err != nil {
		return err
	}
	last := f.Stages[len(f.Stages)-1]
	last.Steps = append(last.Steps, s)
	return nil
}

// begin starts a stage.
func (f *File) begin(s Step) error {
	words := strings.Fields(s.Text)
	if len(words) != 3 || !strings.EqualFold(words[1], "AS") {
		return fmt.Errorf("%w: FROM %s: expected BASE AS NAME", ErrSyntax, s.Text)
	}
	if f.Stage(words[2]) != nil {
		return fmt.Errorf("%w: two stages are called %s", ErrSyntax, words[2])
	}
	f.Stages = append(f.Stages, &Stage{Name: words[2], From: words[0], Platform: s.Flags["platform"]})
	return nil
}

// check refuses what would mean something else to Docker than to this package.
func (s *Step) check() error {
	bad := func(why string) error { return fmt.Errorf("%w: %s %s: %s", ErrSyntax, s.Name, s.Text, why) }
	switch s.Name {
	case "ENTRYPOINT", "CMD", "HEALTHCHECK":
		if !s.List || len(s.Words) == 0 {
			return bad("expected a JSON list, which needs no shell in the image")
		}
	case "RUN":
		if s.List {
			return bad("expected a command for the shell")
		}
		for _, w := range s.Words {
			if _, value, ok := strings.Cut(w, "="); ok {
				w = value
			}
			if strings.HasPrefix(w, "/") {
				return bad("an absolute path, which here would be one of this machine")
			}
		}
	case "COPY":
		if s.List || len(s.Words) < 2 {
			return bad("expected sources and where to")
		}
		if to := s.Words[len(s.Words)-1]; len(s.Words) > 2 && !strings.HasSuffix(to, "/") {
			return bad("several sources, and " + to + " does not end in /")
		}
	case "ENV":
		for _, w := range s.Words {
			if k, v, ok := strings.Cut(w, "="); !ok || k == "" || strings.ContainsAny(v, `"'$\`) {
				return bad("expected NAME=VALUE without quotes and variables")
			}
		}
	case "ARG", "WORKDIR", "USER":
		if len(s.Words) != 1 || strings.ContainsAny(s.Text, "=$") {
			return bad("expected one word")
		}
		if s.Name == "WORKDIR" && !strings.HasPrefix(s.Text, "/") {
			return bad("expected an absolute path")
		}
	}
	return nil
}

// Stage gives the stage of a name, or nil.
func (f *File) Stage(name string) *Stage {
	for _, s := range f.Stages {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Target gives the stages that the one of a name is made of, itself last: an
// empty name is the last one's. A stage uses earlier ones only.
func (f *File) Target(name string) ([]*Stage, error) {
	if name == "" {
		name = f.Stages[len(f.Stages)-1].Name
	}
	needed := map[string]bool{name: true}
	var stages []*Stage
	for _, s := range slices.Backward(f.Stages) {
		if !needed[s.Name] {
			continue
		}
		delete(needed, s.Name)
		if stages = append(stages, s); f.Stage(s.From) != nil {
			needed[s.From] = true
		}
		for _, step := range s.Steps {
			if from := step.Flags["from"]; from != "" {
				needed[from] = true
			}
		}
	}
	for missing := range needed {
		return nil, fmt.Errorf("%w: no stage %q where one is needed", ErrSyntax, missing)
	}
	slices.Reverse(stages)
	return stages, nil
}
