// Package deploy_test checks what Kubernetes is given.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/cmd/lorafuse/cli"
)

// kustomization is what is used of such a file.
type kustomization struct {
	APIVersion         string `yaml:"apiVersion"`
	Kind               string
	Resources          []string
	ConfigMapGenerator []struct {
		Name     string
		Literals []string
		Files    []string
	} `yaml:"configMapGenerator"`
	GeneratorOptions struct {
		DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
	} `yaml:"generatorOptions"`
	Images []struct {
		Name   string
		NewTag string `yaml:"newTag"`
	}
}

// built is what a folder and those that it names put into a cluster: its objects by
// kind, and the values or files of its settings.
type built struct {
	objects  map[string]map[string]any
	settings map[string]map[string]string
}

// build reads a folder, and objects in it that are created apart.
func build(t testing.TB, dir string, apart ...string) built {
	b := built{map[string]map[string]any{}, map[string]map[string]string{}}
	b.add(t, dir)
	for _, name := range apart {
		b.addObject(t, filepath.Join(dir, name))
	}
	return b
}

func (b *built) add(t testing.TB, dir string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	require.NoError(t, err)
	var k kustomization
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&k), dir)
	require.Equal(t, "kustomize.config.k8s.io/v1beta1 Kustomization", k.APIVersion+" "+k.Kind)
	for _, m := range k.ConfigMapGenerator {
		words := map[string]string{}
		for _, l := range m.Literals {
			name, value, ok := strings.Cut(l, "=")
			require.True(t, ok, l)
			words[name] = value
		}
		for _, name := range m.Files {
			raw, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			words[name] = string(raw)
		}
		b.settings[m.Name] = words
	}
	for _, name := range k.Resources {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			b.add(t, path)
			continue
		}
		b.addObject(t, path)
	}
}

func (b *built) addObject(t testing.TB, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var o map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &o), path)
	kind := o["kind"].(string)
	require.NotContains(t, b.objects, kind)
	b.objects[kind] = o
}

// schema is that of all kinds, made by scripts/make_deploy_schemas.py.
func schema(t testing.TB) *jsonschema.Schema {
	raw, err := os.ReadFile("testdata/schemas.json")
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schemas.json", doc))
	s, err := c.Compile("schemas.json")
	require.NoError(t, err)
	return s
}

// validate holds an object against its schema.
func validate(s *jsonschema.Schema, o any) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// at is what lies in an object, by names and numbers.
func at(t testing.TB, o any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := o.(map[string]any)
			require.True(t, ok, "%v", path)
			require.Contains(t, m, p, "%v", path)
			o = m[p]
		case int:
			l, ok := o.([]any)
			require.True(t, ok, "%v", path)
			require.Greater(t, len(l), p, "%v", path)
			o = l[p]
		}
	}
	return o
}

func set(t testing.TB, o, value any, path ...any) {
	last := len(path) - 1
	switch in := at(t, o, path[:last]...).(type) {
	case map[string]any:
		in[path[last].(string)] = value
	case []any:
		in[path[last].(int)] = value
	}
}

// Kubernetes would take all of it.
func TestSchema(t *testing.T) {
	s := schema(t)
	all := func() map[string]map[string]any {
		objects := map[string]map[string]any{}
		for _, b := range []built{build(t, "gateway"), kubeflow(t), build(t, "train/jobset")} {
			for kind, o := range b.objects {
				require.NoError(t, validate(s, o), kind)
				objects[kind] = o
			}
		}
		return objects
	}
	require.Len(t, all(), 7)
	for _, harm := range []struct {
		kind  string
		value any
		path  []any
	}{
		{"Deployment", "one", []any{"spec", "replicas"}},
		{"Deployment", "v1", []any{"apiVersion"}},
		{"Deployment", true, []any{"spec", "template", "spec", "containers", 0, "readOnly"}},
		{"Deployment", 8, []any{"spec", "template", "spec", "containers", 0, "readinessProbe", "httpGet", "path"}},
		{"Service", nil, []any{"spec", "ports", 0, "port"}},
		{"Service", "Ingress", []any{"kind"}},
		{"PersistentVolumeClaim", "20Gi", []any{"spec", "resources", "requests"}},
		{"InferencePool", 70000, []any{"spec", "targetPorts", 0, "number"}},
		{"InferencePool", map[string]any{}, []any{"spec", "selector", "matchLabels"}},
		{"InferencePool", 8000, []any{"spec", "targetPortNumber"}},
		{"InferencePool", "inference.networking.x-k8s.io/v1alpha2", []any{"apiVersion"}},
		{"TrainingRuntime", "MPICH", []any{"spec", "mlPolicy", "mpi", "mpiImplementation"}},
		{"TrainingRuntime", true, []any{"spec", "template", "spec", "replicatedJobs", 0, "image"}},
		{"TrainingRuntime", "trainer.kubeflow.org/v2", []any{"apiVersion"}},
		{"TrainJob", "2", []any{"spec", "trainer", "numNodes"}},
		{"TrainJob", map[string]any{}, []any{"spec", "runtimeRef"}},
		{"JobSet", "Running", []any{"spec", "replicatedJobs", 1, "dependsOn", 0, "status"}},
		{"JobSet", "Restart", []any{"spec", "failurePolicy", "rules", 0, "action"}},
		{"JobSet", true, []any{"spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", 0, "readOnly"}},
	} {
		o := all()[harm.kind]
		set(t, o, harm.value, harm.path...)
		assert.Error(t, validate(s, o), "%s: %v", harm.kind, harm.path)
	}
}

// The parts find each other.
func TestParts(t *testing.T) {
	b := build(t, "gateway")
	d, service, pool := b.objects["Deployment"], b.objects["Service"], b.objects["InferencePool"]
	labels := at(t, d, "spec", "template", "metadata", "labels")
	assert.Equal(t, labels, at(t, d, "spec", "selector", "matchLabels"))
	assert.Equal(t, labels, at(t, service, "spec", "selector"))
	assert.Equal(t, labels, at(t, pool, "spec", "selector", "matchLabels"))

	pod := at(t, d, "spec", "template", "spec")
	c := at(t, pod, "containers", 0)
	port := at(t, c, "ports", 0)
	assert.Equal(t, at(t, port, "name"), at(t, service, "spec", "ports", 0, "targetPort"))
	assert.Equal(t, at(t, port, "containerPort"), at(t, pool, "spec", "targetPorts", 0, "number"))
	for probe, path := range map[string]string{"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"} {
		assert.Equal(t, map[string]any{"path": path, "port": "http"}, at(t, c, probe, "httpGet"))
	}
	volumes := map[string]bool{}
	for _, v := range at(t, pod, "volumes").([]any) {
		volumes[at(t, v, "name").(string)] = true
	}
	for _, m := range at(t, c, "volumeMounts").([]any) {
		assert.True(t, volumes[at(t, m, "name").(string)], m)
	}
	assert.Equal(t, at(t, b.objects["PersistentVolumeClaim"], "metadata", "name"), at(t, pod, "volumes", 0, "persistentVolumeClaim", "claimName"))
	assert.Contains(t, b.settings, at(t, c, "envFrom", 0, "configMapRef", "name"))

	assert.Equal(t, true, at(t, pod, "securityContext", "runAsNonRoot"))
	assert.Equal(t, true, at(t, c, "securityContext", "readOnlyRootFilesystem"))
	assert.Equal(t, false, at(t, c, "securityContext", "allowPrivilegeEscalation"))
	assert.Equal(t, []any{"ALL"}, at(t, c, "securityContext", "capabilities", "drop"))
	assert.Equal(t, false, at(t, pod, "automountServiceAccountToken"))
}

// The command is one that the program takes, with the settings in their places, and it
// has the time to drain.
func TestCommand(t *testing.T) {
	b := build(t, "base")
	pod := at(t, b.objects["Deployment"], "spec", "template", "spec")
	var args []string
	for _, a := range at(t, pod, "containers", 0, "args").([]any) {
		arg := a.(string)
		for name, value := range b.settings["lorafuse"] {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		assert.NotContains(t, arg, "$(")
		if drain, ok := strings.CutPrefix(arg, "--drain-timeout="); ok {
			d, err := time.ParseDuration(drain)
			require.NoError(t, err)
			sleep := at(t, pod, "containers", 0, "lifecycle", "preStop", "sleep", "seconds").(int)
			assert.Less(t, d.Seconds()+float64(sleep), float64(at(t, pod, "terminationGracePeriodSeconds").(int)))
		}
		args = append(args, arg)
	}
	var out, errs bytes.Buffer
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), append(args, "--help"), strings.NewReader(""), &out, &errs), errs.String())
	assert.Contains(t, out.String(), "lorafuse serve")
}
