package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// settings are the Options with the environment's answers filled in.
type settings struct {
	cache    string
	endpoint string
	token    string
	offline  bool
}

func (o Options) settings() (settings, error) {
	s := settings{cache: o.Cache, endpoint: o.Endpoint, token: o.Token, offline: o.Offline}
	s.offline = s.offline || isTrue(firstEnv("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
	if s.endpoint == "" {
		s.endpoint = firstEnv("HF_ENDPOINT")
	}
	if s.endpoint == "" {
		s.endpoint = "https://huggingface.co"
	}
	s.endpoint = strings.TrimRight(s.endpoint, "/")
	if u, err := url.Parse(s.endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return s, fmt.Errorf("%w: endpoint %q, expected http(s)://host", ErrName, s.endpoint)
	}
	home, err := hfHome()
	if err != nil {
		return s, err
	}
	if s.cache == "" {
		s.cache = expand(firstEnv("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"))
	}
	if s.cache == "" {
		s.cache = filepath.Join(home, "hub")
	}
	if s.cache, err = filepath.Abs(s.cache); err != nil {
		return s, err
	}
	if s.token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		if s.token, err = findToken(home); err != nil {
			return s, err
		}
	}
	if strings.ContainsFunc(s.token, func(c rune) bool { return c < '!' || c > '~' }) {
		return s, fmt.Errorf("%w: the access token has characters that no token has", ErrUnauthorized)
	}
	return s, nil
}

// hfHome returns the folder of the Hugging Face libraries.
func hfHome() (string, error) {
	if home := expand(os.Getenv("HF_HOME")); home != "" {
		return home, nil
	}
	if cache := expand(os.Getenv("XDG_CACHE_HOME")); cache != "" {
		return filepath.Join(cache, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for the cache: %w; set HF_HOME", err)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// findToken returns the token from the environment or from the file that `hf auth login` writes; "" if there is none.
func findToken(home string) (string, error) {
	if t := clean(firstEnv("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")); t != "" {
		return t, nil
	}
	path := expand(os.Getenv("HF_TOKEN_PATH"))
	if path == "" {
		path = filepath.Join(home, "token")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return clean(string(text)), err
}

func clean(token string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

func firstEnv(names ...string) string {
	for _, n := range names {
		if v := os.Getenv(n); v != "" {
			return v
		}
	}
	return ""
}

func isTrue(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// expand resolves ~ and $VARIABLES, as huggingface_hub does.
func expand(path string) string {
	path = os.ExpandEnv(path)
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, path[1:])
		}
	}
	return path
}
