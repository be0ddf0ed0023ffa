package hub

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// A repository is a model or a dataset on the Hub at a revision.
type repository struct {
	id       string // owner/name
	revision string
	dataset  bool
}

const defaultRevision = "main"

func (r repository) String() string {
	if r.revision == defaultRevision {
		return r.id
	}
	return r.id + "@" + r.revision
}

// page returns the path of the repository on the Hub.
func (r repository) page() string {
	if r.dataset {
		return "datasets/" + r.id
	}
	return r.id
}

// kind returns dataset or model.
func (r repository) kind() string {
	if r.dataset {
		return "dataset"
	}
	return "model"
}

// owned reports whether the name has an owner, as all but the oldest on the Hub have.
func (r repository) owned() bool { return strings.Contains(r.id, "/") }

// noFolder returns the error for a name that cannot be on the Hub. Errors: ErrName.
func noFolder(name string) error {
	return fmt.Errorf("%w: there is no folder %q%s; a model on the Hub is owner/name", ErrName, name, didYouMean(name))
}

// maxEntries bounds how many entries of a folder are compared with a name.
const maxEntries = 4096

// didYouMean returns a hint with the folders that a mistyped name probably means.
func didYouMean(name string) string {
	within := filepath.Dir(name)
	f, err := os.Open(within)
	if err != nil {
		return ""
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxEntries)
	var folders []string
	for _, e := range entries {
		path := filepath.Join(within, e.Name())
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			folders = append(folders, path)
		}
	}
	slices.Sort(folders)
	return suggest.DidYouMean(filepath.Clean(name), folders)
}

// parseName reads owner/name[@revision] by the rules of the Hub.
func parseName(name string) (repository, error) {
	id, revision, pinned := strings.Cut(name, "@")
	bad := func(why string) (repository, error) {
		return repository{}, fmt.Errorf("%w: %q is no folder here%s and %s; expected a folder or owner/name[@revision]", ErrName, name, didYouMean(name), why)
	}
	if !pinned {
		revision = defaultRevision
	}
	// The revision becomes a file name (refs/…) and a part of an address.
	if revision == "" || !filepath.IsLocal(filepath.FromSlash(revision)) || strings.ContainsAny(revision, "\\:\x00") {
		return bad("has a revision that cannot be one")
	}
	if len(id) > 96 || strings.Count(id, "/") > 1 {
		return bad("cannot be the name of a model on the Hub")
	}
	for part := range strings.SplitSeq(id, "/") {
		if part == "" || strings.Trim(part, "-.") != part || strings.ContainsFunc(part, notInName) {
			return bad("cannot be the name of a model on the Hub")
		}
	}
	if strings.Contains(id, "--") || strings.Contains(id, "..") || strings.HasSuffix(id, ".git") {
		return bad("cannot be the name of a model on the Hub")
	}
	return repository{id: id, revision: revision}, nil
}

func notInName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

// namedRefs are revisions with slashes in them: refs/pr/1, refs/convert/parquet.
const namedRefs = "refs/"

// parsePath reads owner/name[@revision][/path].
func parsePath(name string) (repo repository, inside string, err error) {
	owner, rest, ok := strings.Cut(name, "/")
	if !ok {
		repo, err = parseName(name)
		return repo, "", err
	}
	model, inside, ok := strings.Cut(rest, "/")
	if before, revision, pinned := strings.Cut(model, "@"); pinned && revision+"/" == namedRefs {
		kind, more, _ := strings.Cut(inside, "/")
		var number string
		number, inside, ok = strings.Cut(more, "/")
		model = before + "@" + namedRefs + kind + "/" + number
	}
	if ok && !safePath(inside) {
		return repo, "", fmt.Errorf("%w: %q is no path here and %q cannot be one on the Hub; expected a folder or owner/name[@revision][/folder]", ErrName, name, inside)
	}
	repo, err = parseName(owner + "/" + model)
	return repo, inside, err
}

// isCommit reports whether a revision is a commit hash.
func isCommit(revision string) bool { return len(revision) == 40 && isHex(revision) }

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}
