package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Options are what Build goes by.
type Options struct {
	Target string // name of the stage; empty for the last
	// Folder has the build context, Files of it what Docker would be sent.
	Folder string
	Files  []string
	Work   string   // where the stages lie, a folder each; stages that are there are used as they are
	Arch   string   // TARGETARCH
	Env    []string // of commands, beside what the file says
	// Seeds are folders that are there before a stage begins, where they exist:
	// "stage:path below its WORKDIR" to a folder of this machine. They take the
	// place of layers that Docker would have in its cache.
	Seeds map[string]string
	Log   io.Writer
}

// Image is what a stage has become.
type Image struct {
	Root        string // folder that stands for /
	From        string // base image, which is not there
	WorkDir     string
	User        string
	Env         []string
	Entrypoint  []string
	Cmd         []string
	Healthcheck []string
}

// Build takes the steps of a target and of all stages that it needs.
func Build(ctx context.Context, f *File, o Options) (*Image, error) {
	stages, err := f.Target(o.Target)
	if err != nil {
		return nil, err
	}
	b := &builder{o, map[string]*Image{}}
	for _, s := range stages {
		if err := b.stage(ctx, s); err != nil {
			return nil, fmt.Errorf("stage %s: %w", s.Name, err)
		}
	}
	return b.images[stages[len(stages)-1].Name], nil
}

type builder struct {
	Options
	images map[string]*Image
}

// done marks a stage whose steps were taken.
const done = ".done"

func (b *builder) stage(ctx context.Context, s *Stage) error {
	m := &Image{Root: filepath.Join(b.Work, s.Name), From: s.From, WorkDir: "/"}
	b.images[s.Name] = m
	mark := m.Root + done
	_, err := os.Stat(mark)
	there := err == nil
	if !there {
		if err := errors.Join(os.RemoveAll(m.Root), os.MkdirAll(m.Root, 0o755)); err != nil {
			return err
		}
	}
	args := map[string]string{}
	for i := range s.Steps {
		step := &s.Steps[i]
		if m.set(step) {
			continue
		}
		fmt.Fprintf(b.Log, "%s:%d: %s %s\n", s.Name, step.Line, step.Name, step.Text)
		if err := b.step(ctx, s, m, step, args, there); err != nil {
			return fmt.Errorf("line %d: %s %s: %w", step.Line, step.Name, step.Text, err)
		}
	}
	return os.WriteFile(mark, nil, 0o644)
}

// set takes in what only describes the image.
func (m *Image) set(s *Step) bool {
	switch s.Name {
	case "ENV":
		m.Env = append(m.Env, s.Words...)
	case "USER":
		m.User = s.Text
	case "ENTRYPOINT":
		m.Entrypoint = s.Words
	case "CMD":
		m.Cmd = s.Words
	case "HEALTHCHECK":
		m.Healthcheck = s.Words
	case "EXPOSE":
	default:
		return false
	}
	return true
}

func (b *builder) step(ctx context.Context, s *Stage, m *Image, step *Step, args map[string]string, there bool) error {
	switch step.Name {
	case "ARG":
		if step.Text != "TARGETARCH" {
			return fmt.Errorf("%w: expected TARGETARCH, the one that is given", ErrSyntax)
		}
		args[step.Text] = b.Arch
	case "WORKDIR":
		m.WorkDir = step.Text
		if there {
			return nil
		}
		if err := os.MkdirAll(m.path(""), 0o755); err != nil {
			return err
		}
		return b.seed(s, m)
	case "COPY":
		if !there {
			return b.copy(s, m, step)
		}
	case "RUN":
		if !there {
			return b.run(ctx, m, step, args)
		}
	}
	return nil
}

// path is where a path of the image lies on this machine.
func (m *Image) path(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(m.WorkDir, name)
	}
	return filepath.Join(m.Root, filepath.FromSlash(name))
}

func (b *builder) seed(s *Stage, m *Image) error {
	for _, key := range slices.Sorted(maps.Keys(b.Seeds)) {
		stage, to, _ := strings.Cut(key, ":")
		from, err := filepath.EvalSymlinks(b.Seeds[key])
		if stage != s.Name || err != nil {
			continue
		}
		fmt.Fprintf(b.Log, "%s: %s is there already\n", s.Name, to)
		if err := copyTree(from, m.path(to), owner{}); err != nil {
			return err
		}
	}
	return nil
}

// run has the shell do a step, in the folder of WORKDIR.
func (b *builder) run(ctx context.Context, m *Image, step *Step, args map[string]string) error {
	c := exec.CommandContext(ctx, "sh", "-e", "-c", step.Text)
	c.Dir, c.Stdout, c.Stderr = m.path(""), b.Log, b.Log
	c.Env = append(slices.Concat(os.Environ(), b.Env, m.Env), "PWD="+c.Dir)
	for k, v := range args {
		c.Env = append(c.Env, k+"="+v)
	}
	return c.Run()
}

// copy brings files of the context or of another stage in. What another stage
// does not have is taken to be of its base image, for which this machine stands.
func (b *builder) copy(s *Stage, m *Image, step *Step) error {
	sources, to := step.Words[:len(step.Words)-1], step.Words[len(step.Words)-1]
	own, err := ownerOf(step.Flags["chown"])
	if err != nil {
		return err
	}
	for _, from := range sources {
		target := m.path(to)
		if stage := step.Flags["from"]; stage != "" {
			source := b.images[stage].path(from)
			if _, err := os.Lstat(source); err != nil && b.images[stage].From != "scratch" {
				fmt.Fprintf(b.Log, "%s: %s is one of %s, taken from this machine\n", s.Name, from, b.images[stage].From)
				source = filepath.FromSlash(from)
			}
			err = copyPath(source, target, strings.HasSuffix(to, "/"), own)
		} else {
			err = b.copyContext(path.Clean(from), target, strings.HasSuffix(to, "/"), own)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyContext brings a file of the context in, or what lies in a folder of it.
func (b *builder) copyContext(from, to string, into bool, own owner) error {
	found := false
	for _, name := range b.Files {
		source := filepath.Join(b.Folder, filepath.FromSlash(name))
		var target string
		switch below, ok := strings.CutPrefix(name, from+"/"); {
		case from == ".":
			target = filepath.Join(to, filepath.FromSlash(name))
		case ok:
			target = filepath.Join(to, filepath.FromSlash(below))
		case name == from && into:
			target = filepath.Join(to, path.Base(name))
		case name == from:
			target = to
		default:
			continue
		}
		found = true
		if err := copyFile(source, target, own); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s: %w in the build context: does .dockerignore leave it out?", from, fs.ErrNotExist)
	}
	return nil
}

// owner is who files are given to; the zero one leaves them to whoever copies.
type owner struct {
	set      bool
	uid, gid int
}

// ownerOf reads uid:gid. Where this process may not give files away, they stay
// its own.
func ownerOf(text string) (o owner, err error) {
	if text == "" {
		return o, nil
	}
	uid, gid, _ := strings.Cut(text, ":")
	o.uid, err = strconv.Atoi(uid)
	if err == nil {
		o.gid, err = strconv.Atoi(gid)
	}
	if err != nil {
		return o, fmt.Errorf("%w: --chown=%s: expected two numbers", ErrSyntax, text)
	}
	o.set = os.Geteuid() == 0
	return o, nil
}

// copyPath copies a file, or what lies in a folder.
func copyPath(from, to string, into bool, own owner) error {
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return copyTree(from, to, own)
	case into:
		to = filepath.Join(to, filepath.Base(from))
	}
	return copyFile(from, to, own)
}

// copyTree copies what lies in a folder. Folders keep their modes.
func copyTree(from, to string, own owner) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(target, 0o755); err != nil || rel == "." {
				return err
			}
			return errors.Join(os.Chmod(target, info.Mode()), own.give(target))
		}
		if d.Type()&fs.ModeSymlink != 0 {
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		return copyFile(name, target, own)
	})
}

// copyFile copies a file with its mode, and makes the folders above it.
func copyFile(from, to string, own owner) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return err
	}
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close(), os.Chmod(to, info.Mode()), own.give(to))
}

func (o owner) give(name string) error {
	if !o.set {
		return nil
	}
	return os.Lchown(name, o.uid, o.gid)
}
