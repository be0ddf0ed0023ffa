package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // jobs train a language model
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/tokenizer"
)

const llama = "../../../testdata/lm/llama/"

// grouped is a service on two devices.
type grouped struct {
	*Service
	t       *testing.T
	devices [2]*testdevice.Lossy
	engines *batching.Group
}

// newGrouped opens a service with adapters, in which clients can train.
func newGrouped(t *testing.T) *grouped {
	t.Helper()
	m, err := model.Open(llama + "model")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	words, err := tokenizer.Load(m.Dir)
	require.NoError(t, err)
	g, hooks := &grouped{t: t}, &Hooks{}
	var all []backend.Device
	for i := range g.devices {
		g.devices[i] = testdevice.NewLossy(t, i, backend.Options{Threads: 1, BatchInvariant: true})
		all = append(all, g.devices[i])
	}
	g.engines, err = batching.NewGroup(t.Context(), all, m, batching.Options{
		Adapters: lora.RegistryOptions{Root: llama + "adapters", Find: hooks.Find}, OnStep: hooks.OnStep,
	})
	require.NoError(t, err)
	t.Cleanup(g.engines.Close)
	g.Service, err = New(Options{
		Options: serve.Options{Name: "base", Model: m, Tokenizer: words, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, Engines: g.engines, Hooks: hooks, TrainDir: t.TempDir(),
	})
	require.NoError(t, err)
	t.Cleanup(g.Service.Close)
	return g
}

// ask sends a request with a body, if there is one, and returns the answer.
func (g *grouped) ask(path, kind, body string) *httptest.ResponseRecorder {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// complete returns the status and the text of a completion.
func (g *grouped) complete(adapter string, seed int) (status int, text string) {
	g.t.Helper()
	w := g.ask("/v1/completions", "application/json", fmt.Sprintf(`{"model":%q,"prompt":[%d,5,9],"max_tokens":3,"temperature":0}`, adapter, seed))
	var a struct{ Choices []struct{ Text string } }
	require.NoError(g.t, json.Unmarshal(w.Body.Bytes(), &a))
	if w.Code != http.StatusOK {
		return w.Code, w.Body.String()
	}
	return w.Code, a.Choices[0].Text
}

// metric returns the value of a series of a device.
func (g *grouped) metric(name string, device int, more string) string {
	g.t.Helper()
	found := regexp.MustCompile(fmt.Sprintf(`(?m)^lorafuse:%s\{device="cpu:%d",engine="0",model_name="base"%s\} (.*)$`, name, device, more)).FindStringSubmatch(g.ask("/metrics", "", "").Body.String())
	require.NotNil(g.t, found, name)
	return found[1]
}

// Clients see one server: a device that is lost takes its requests along, and the others get their answers.
func TestGroupLost(t *testing.T) {
	g := newGrouped(t)
	want := map[string]string{}
	for _, adapter := range []string{"base", "lora", "dora"} {
		status, text := g.complete(adapter, 7)
		require.Equal(t, http.StatusOK, status, text)
		want[adapter] = text
	}
	assert.Empty(t, g.ask("/health", "", "").Body.String())
	for i := range g.devices {
		assert.Equal(t, "1", g.metric("device_up", i, ""))
		assert.Equal(t, "1", g.metric("device_adapters", i, ""))
	}

	g.devices[0].Lose(0)
	lost := 0
	for _, adapter := range []string{"lora", "dora"} {
		if status, text := g.complete(adapter, 7); status != http.StatusOK {
			lost++
			assert.Equal(t, http.StatusServiceUnavailable, status)
			assert.Contains(t, text, `"code":"device_lost"`)
		}
	}
	assert.Equal(t, 1, lost)
	for adapter, text := range want {
		status, got := g.complete(adapter, 7)
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, text, got)
	}
	w := g.ask("/health", "", "")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.JSONEq(t, `{"status":"degraded","reasons":["batching: device cpu:0: batching: testdevice: device 0: device lost"]}`, w.Body.String())
	assert.Equal(t, "0", g.metric("device_up", 0, ""))
	assert.Equal(t, "1", g.metric("device_up", 1, ""))
	assert.Empty(t, g.Lost())

	g.devices[1].Lose(0)
	status, _ := g.complete("base", 1)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	require.ErrorIs(t, <-g.Lost(), backend.ErrLost)
	assert.Equal(t, http.StatusServiceUnavailable, g.ask("/health", "", "").Code)
	assert.Equal(t, http.StatusServiceUnavailable, g.ask("/ready", "", "").Code)
}

// Jobs train beside serving. One whose device is lost is paused, and goes on with another one to the same adapter.
func TestGroupTrains(t *testing.T) {
	g := newGrouped(t)
	var form bytes.Buffer
	fields := multipart.NewWriter(&form)
	require.NoError(t, fields.WriteField("purpose", "fine-tune"))
	file, err := fields.CreateFormFile("file", "rows.jsonl")
	require.NoError(t, err)
	for i := range 12 {
		_, err = fmt.Fprintf(file, "{\"text\":\"The number %d is followed by %d.\"}\n", i, i+1)
		require.NoError(t, err)
	}
	require.NoError(t, fields.Close())
	type object struct{ ID, Status string }
	decode := func(w *httptest.ResponseRecorder) (o object) {
		t.Helper()
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o))
		return o
	}
	rows := decode(g.ask("/v1/files", fields.FormDataContentType(), form.String())).ID
	train := func(name string) (id string) {
		t.Helper()
		return decode(g.ask("/v1/fine_tuning/jobs", "application/json",
			fmt.Sprintf(`{"model":"base","training_file":%q,"suffix":%q,"seed":1,"hyperparameters":{"n_epochs":1},"lora":{"r":2}}`, rows, name))).ID
	}
	await := func(id, status string) {
		t.Helper()
		require.Eventually(t, func() bool { return decode(g.ask("/v1/fine_tuning/jobs/"+id, "", "")).Status == status }, time.Minute, 10*time.Millisecond)
	}
	trained := func(device int) bool {
		t.Helper()
		return g.metric("training_seconds_total", device, `,while="idle"`) != "0"
	}
	await(train("first"), "succeeded")
	assert.True(t, trained(0))
	assert.False(t, trained(1))
	status, want := g.complete("first", 3)
	require.Equal(t, http.StatusOK, status)

	g.devices[0].Lose(20)
	second := train("second")
	await(second, "paused")
	decode(g.ask("/v1/fine_tuning/jobs/"+second+"/resume", "application/json", "{}"))
	await(second, "succeeded")
	assert.True(t, trained(1))
	status, got := g.complete("second", 3)
	if status == http.StatusServiceUnavailable { // it was the first request for the device that is lost
		status, got = g.complete("second", 3)
	}
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, want, got, "of the same rows and seed")
}
