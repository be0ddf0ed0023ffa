package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

func TestHubPush(t *testing.T) {
	h := testhub.Serve(t, map[string]*testhub.Repo{})
	h.Push = &testhub.Push{Tokens: map[string][]string{"hf_write": {"acme"}}}
	const dir = goldens + "/lm/llama/model"
	r := command(t, "", "hub", "push", dir, "acme/tiny")
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, "lorafuse: cannot push: set HF_TOKEN")

	t.Setenv("HF_TOKEN", "hf_write")
	assert.Equal(t, h.Server.URL+"/acme/tiny\n", succeed(t, "hub", "push", dir, "acme/tiny"))
	assert.True(t, h.Repos["acme/tiny"].Private)
	assert.Contains(t, command(t, "", "hub", "push", dir, "acme/tiny").stderr, "hub      acme/tiny is up to date")

	h.Stop(map[string][]int{"commit": {412}})
	r = command(t, "", "hub", "push", dir, "acme/other", "--public", "--message", "x")
	assert.Equal(t, ExitFailure, r.status)
	assert.Contains(t, r.stderr, "the branch has changed")
	r = command(t, "", "hub", "push", "none", "acme/other")
	assert.Equal(t, ExitUsage, r.status)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"))
	r = command(t, "", "hub", "push", dir)
	assert.Contains(t, r.stderr, "the repository OWNER/NAME is missing")
}
