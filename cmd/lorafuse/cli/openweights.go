package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors/remote"
)

// openWeights opens the tensors at a path that findWeights returned, or at a URL. From a URL it fetches only the
// required ranges.
func (a *app) openWeights(ctx context.Context, path string) (*weights.Set, error) {
	if !isURL(path) {
		return weights.Open(path)
	}
	f, err := remote.Open(ctx, path, remote.Options{})
	if err != nil {
		var network net.Error
		if errors.As(err, &network) {
			err = &failure{err}
		}
		return nil, err
	}
	return weights.New(f), nil
}

// findWeights returns the path of a file or a folder. A path that is neither, and is not named like a weights file,
// may be a name on the Hub. Of a GGUF file it is the folder that describes it as a model.
func (a *app) findWeights(ctx context.Context, command, path string) (string, error) {
	_, err := os.Stat(path)
	if filepath.Ext(path) == ".gguf" {
		return a.resolve(ctx, command, path, hub.Options{})
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) || isURL(path) || slices.Contains(weightEndings, filepath.Ext(path)) {
		return path, nil
	}
	return a.resolve(ctx, command, path, hub.Options{})
}

func isURL(path string) bool {
	return strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://")
}

var weightEndings = []string{".safetensors", ".json", ".bin", ".pt", ".pth", ".ckpt"}

// glob is a pattern of tensor names: * is any text, ? any character.
type glob struct {
	text    string
	pattern *regexp.Regexp
}

func newGlob(text string) glob {
	quoted := regexp.QuoteMeta(text)
	quoted = strings.ReplaceAll(quoted, `\*`, ".*")
	quoted = strings.ReplaceAll(quoted, `\?`, ".")
	return glob{text, regexp.MustCompile(`^(?s:` + quoted + `)$`)}
}

func (g glob) matches(name string) bool { return g.pattern.MatchString(name) }

// check refuses a pattern that no name matches: it is a slip.
func (g glob) check(flag string, names []string) error {
	if slices.ContainsFunc(names, g.matches) {
		return nil
	}
	return fmt.Errorf("--%s: no tensor has a name like %q%s", flag, g.text, suggest.DidYouMean(g.text, names))
}
