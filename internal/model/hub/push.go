package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// PushOptions configure Push.
type PushOptions struct {
	Options
	// Public makes a new repository public. The default is private.
	Public bool
	// Revision is the branch, main by default. A missing branch is created from main.
	Revision string
	// Message is the title of the commit.
	Message string
	// Force allows files in the repository that the folder lacks. They stay as they are.
	Force bool
	// Note, if not nil, receives remarks on files that are not pushed.
	Note func(text string)
}

// Pushed describes a completed push.
type Pushed struct {
	Repository string `json:"repository"`
	Revision   string `json:"revision"`
	Commit     string `json:"commit"`
	URL        string `json:"url"`
	Files      int    `json:"files"`   // in the commit; 0 if the repository was up to date
	Bytes      int64  `json:"bytes"`   // of these files
	Created    bool   `json:"created"` // whether the repository is new
}

// Push uploads the files of the folder of an adapter or a model to owner/name[@revision] on the Hub. It creates a missing
// repository. Large files are uploaded first, and one commit at the end makes all of them visible. A later call skips
// what has been uploaded. Hidden files are left out. Errors: ErrPush, ErrFolder, ErrOccupied, ErrPublic,
// ErrMoved, and the errors of Resolve.
func Push(ctx context.Context, dir, name string, o PushOptions) (*Pushed, error) {
	repo, err := parseName(name)
	switch {
	case err != nil || !repo.owned():
		return nil, fmt.Errorf("%w: %q, expected owner/name of a repository on the Hub", ErrName, name)
	case o.Revision != "" && strings.Contains(name, "@") && o.Revision != repo.revision:
		return nil, fmt.Errorf("%w: %q names the revision %s, and the option %s", ErrName, name, repo.revision, o.Revision)
	case o.Revision != "":
		if repo, err = parseName(repo.id + "@" + o.Revision); err != nil {
			return nil, fmt.Errorf("%w: %q cannot be a branch", ErrName, o.Revision)
		}
	}
	if isCommit(repo.revision) {
		return nil, fmt.Errorf("%w: %s is a commit, expected a branch", ErrName, repo.revision)
	}
	files, err := localFiles(dir, o.Note)
	if err != nil {
		return nil, err
	}
	s, err := o.settings()
	switch {
	case err != nil:
		return nil, err
	case s.offline:
		return nil, fmt.Errorf("%w: HF_HUB_OFFLINE is set", ErrPush)
	case s.token == "":
		return nil, fmt.Errorf("%w: set HF_TOKEN to a token with write access from %s/settings/tokens", ErrPush, s.endpoint)
	}
	p := &push{remote: newRemote(s, repo, o.Transport, pushAnswer), o: o, dir: dir, files: files, cache: cacheOf(s.cache, repo)}
	defer p.close()
	done, err := p.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted, and %s is unchanged; the same command resumes the upload: %w", repo, context.Cause(ctx))
	}
	return done, err
}

// push is a push in progress.
type push struct {
	*remote
	o     PushOptions
	dir   string
	files []*localFile
	cache *cache

	head    string // the commit that the new one follows
	branch  bool   // whether the branch exists
	created bool
}

func (p *push) run(ctx context.Context) (*Pushed, error) {
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	if err := p.modes(ctx); err != nil {
		return nil, err
	}
	changed := p.changed()
	if len(changed) == 0 && p.branch {
		return p.result(p.head, nil), nil
	}
	if err := p.uploadLarge(ctx, changed); err != nil {
		return nil, err
	}
	for _, f := range changed {
		if err := f.unchanged(); err != nil {
			return nil, err
		}
	}
	if !p.branch {
		if err := p.post(ctx, p.api("branch"), jsonType, struct{}{}, nil); err != nil {
			return nil, err
		}
		p.branch = true
		if len(changed) == 0 {
			return p.result(p.head, nil), nil
		}
	}
	commit, err := p.commit(ctx, changed)
	if err != nil {
		return nil, err
	}
	return p.result(commit, changed), nil
}

func (p *push) result(commit string, changed []*localFile) *Pushed {
	done := &Pushed{Repository: p.repo.id, Revision: p.repo.revision, Commit: commit, URL: p.endpoint + "/" + p.repo.id, Files: len(changed), Created: p.created}
	if p.repo.revision != defaultRevision {
		done.URL += "/tree/" + p.repo.revision
	}
	for _, f := range changed {
		done.Bytes += f.size
	}
	return done
}

// api returns an address of the API for the revision.
func (p *push) api(what string) string {
	return p.endpoint + "/api/models/" + p.repo.id + "/" + what + "/" + url.PathEscape(p.repo.revision)
}

// prepare makes sure that the repository exists, is as private as requested, and has no other files.
func (p *push) prepare(ctx context.Context) error {
	state, err := p.state(ctx, p.repo.revision)
	switch {
	case errors.Is(err, ErrNotFound):
		if err := p.create(ctx); err != nil {
			return err
		}
		p.created, p.branch = true, p.repo.revision == defaultRevision
		state, err = p.state(ctx, defaultRevision)
	case errors.Is(err, ErrRevision) && p.repo.revision != defaultRevision:
		state, err = p.state(ctx, defaultRevision)
	default:
		p.branch = true
	}
	if err != nil {
		return err
	}
	if !p.o.Public && !state.Private {
		return fmt.Errorf("%w: %s; nothing was uploaded; push with --public, or choose another name", ErrPublic, p.repo.id)
	}
	if p.o.Public && state.Private && p.o.Note != nil {
		p.o.Note(p.repo.id + " exists and stays private")
	}
	p.head = state.SHA
	return p.checkOthers(state.names())
}

// checkOthers returns ErrOccupied for files of the repository that the folder lacks.
func (p *push) checkOthers(there []string) error {
	others := slices.DeleteFunc(there, func(name string) bool {
		return name == ".gitattributes" || name == cardFile || slices.ContainsFunc(p.files, func(f *localFile) bool { return f.name == name })
	})
	if len(others) == 0 || p.o.Force {
		return nil
	}
	return fmt.Errorf("%w: %s has %s, which %s lacks; choose another name, or push with --force to keep these files next to the new ones", ErrOccupied, p.repo, few(others), p.dir)
}

// repoState is a revision of a repository as the Hub describes it.
type repoState struct {
	SHA      string `json:"sha"`
	Private  bool   `json:"private"`
	Siblings []struct {
		Name string `json:"rfilename"`
	} `json:"siblings"`
}

func (s *repoState) names() (names []string) {
	for _, f := range s.Siblings {
		names = append(names, f.Name)
	}
	return names
}

// state requests the state of a revision.
func (p *push) state(ctx context.Context, revision string) (*repoState, error) {
	s := &repoState{}
	err := p.call(ctx, http.MethodGet, p.endpoint+"/api/models/"+p.repo.id+"/revision/"+url.PathEscape(revision), "", nil, s)
	if err == nil && !isCommit(s.SHA) {
		err = p.notAHub()
	}
	return s, err
}

// create creates the repository. It may exist by now: of a first try whose answer was lost, for example.
func (p *push) create(ctx context.Context) error {
	owner, name, _ := strings.Cut(p.repo.id, "/")
	visibility := "private"
	if p.o.Public {
		visibility = "public"
	}
	err := p.post(ctx, p.endpoint+"/api/repos/create", jsonType, map[string]string{"type": "model", "organization": owner, "name": name, "visibility": visibility}, nil)
	if errors.Is(err, ErrMoved) {
		return nil
	}
	return err
}

// perCall is the largest number of files in one request, as in huggingface_hub.
const perCall = 256

// modes asks the Hub how to upload each file, and which files it has already.
func (p *push) modes(ctx context.Context) error {
	type query struct {
		Path   string `json:"path"`
		Sample []byte `json:"sample"`
		Size   int64  `json:"size"`
	}
	address := p.api("preupload")
	if !p.branch {
		address = p.endpoint + "/api/models/" + p.repo.id + "/preupload/" + defaultRevision
	}
	byName := map[string]*localFile{}
	for part := range slices.Chunk(p.files, perCall) {
		var queries []query
		for _, f := range part {
			sample, err := f.sample()
			if err != nil {
				return err
			}
			byName[f.name] = f
			queries = append(queries, query{f.name, sample, f.size})
		}
		var answer struct {
			Files []struct {
				Path   string `json:"path"`
				Mode   string `json:"uploadMode"`
				Ignore bool   `json:"shouldIgnore"`
				OID    string `json:"oid"`
			} `json:"files"`
		}
		if err := p.post(ctx, address, jsonType, map[string]any{"files": queries}, &answer); err != nil {
			return err
		}
		for _, a := range answer.Files {
			f := byName[a.Path]
			if f == nil || a.Mode != "lfs" && a.Mode != "regular" {
				return p.notAHub()
			}
			f.known, f.ignored, f.remote = true, a.Ignore, a.OID
			f.large = a.Mode == "lfs" && f.size > 0 // large storage takes no empty files
		}
	}
	for _, f := range p.files {
		if !f.known {
			return p.notAHub()
		}
		if f.ignored && p.o.Note != nil {
			p.o.Note(f.name + " is not pushed: .gitignore of the repository names it")
		}
		if err := f.hash(); err != nil {
			return err
		}
	}
	return nil
}

// changed returns the files that the repository does not have as they are.
func (p *push) changed() (files []*localFile) {
	for _, f := range p.files {
		if !f.ignored && f.oid != f.remote {
			files = append(files, f)
		}
	}
	return files
}

func (p *push) notAHub() error {
	return fmt.Errorf("%w: %s does not answer as a Hub does; check HF_ENDPOINT and the proxy", ErrUnreachable, p.endpoint)
}
