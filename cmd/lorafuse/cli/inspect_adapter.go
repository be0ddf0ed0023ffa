package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// adapterReport is the output of `inspect` for an adapter. The fields after Base are set only if the model is known.
type adapterReport struct {
	Rank    int     `json:"r"`
	Alpha   float64 `json:"lora_alpha"`
	DoRA    bool    `json:"use_dora"`
	RSLoRA  bool    `json:"use_rslora"`
	Dropout float64 `json:"lora_dropout"`
	Init    string  `json:"init_lora_weights"`
	Modules string  `json:"target_modules"`
	Base    string  `json:"base_model_name_or_path,omitempty"`
	Task    string  `json:"task_type,omitempty"`

	// Classes are the classes of a classifier, if a file next to the adapter names them.
	Classes    []string `json:"classes,omitempty"`
	Problem    string   `json:"problem_type,omitempty"`
	Parameters []string `json:"target_parameters,omitempty"`

	Targets  []targetInfo `json:"targets,omitempty"`
	Saved    []string     `json:"modules_to_save,omitempty"`
	Problems []string     `json:"problems,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`

	method string
}

// targetInfo is one module with an adapter.
type targetInfo struct {
	Name    string   `json:"name"`
	Rank    int      `json:"rank"`
	Scale   float64  `json:"scale"`
	In      int      `json:"in"`
	Out     int      `json:"out"`
	Missing []string `json:"missing,omitempty"` // tensors
}

func (a *app) inspectAdapter(ctx context.Context, i *inspection, m *modelFlags) error {
	if m.model == "" {
		c, err := lora.ReadConfig(i.Path)
		if err != nil {
			return err
		}
		return i.describe(c)
	}
	of := *m
	of.adapter, of.classifies = i.Path, true
	base, err := a.openModel(ctx, &of)
	if err != nil {
		return err
	}
	defer base.Close()
	adapter, err := dialects.OpenText(i.Path, base)
	if err != nil {
		return err
	}
	defer adapter.Close()
	if err := i.describe(adapter.Config); err != nil {
		return err
	}
	placed, err := lora.NewPlacement(adapter.Config, lora.ModelOf(base.Config.ModelType, base.Modules()).SpelledAs(adapter.Names()))
	if err != nil {
		i.Adapter.Problems = []string{err.Error()}
		return nil
	}
	i.Adapter.cover(adapter, placed)
	return nil
}

// describe explains the configuration of an adapter.
func (i *inspection) describe(c *lora.Config) error {
	i.Adapter = &adapterReport{
		Rank: c.R, Alpha: c.LoraAlpha, DoRA: c.UseDoRA, RSLoRA: c.UseRSLoRA, Dropout: c.LoraDropout,
		Init: string(c.InitLoraWeights), Modules: c.TargetModules.String(), Parameters: c.TargetParameters, Saved: c.ModulesToSave,
		method: c.Method(),
	}
	if c.BaseModelNameOrPath != nil {
		i.Adapter.Base = *c.BaseModelNameOrPath
	}
	if c.TaskType != nil {
		i.Adapter.Task = *c.TaskType
	}
	i.Adapter.Warnings = c.Warnings
	if !c.IsClassifier() {
		return nil
	}
	classes, _, err := model.ReadClasses(i.Path)
	if err != nil {
		return err
	}
	i.Adapter.Classes, i.Adapter.Problem = classes.Names, string(classes.Problem)
	return nil
}

// cover accounts for every target and every tensor.
func (r *adapterReport) cover(a *lora.Adapter, p *lora.Placement) {
	report := a.Check(p, lora.CheckOptions{})
	for _, t := range p.Targets {
		info := targetInfo{Name: t.Name, Rank: t.Rank, Scale: t.Scale, In: t.In, Out: t.Out}
		for _, s := range p.Tensors() {
			if _, ok := a.Tensor(s.Key); !ok && !s.Optional && s.Module == t.Name {
				info.Missing = append(info.Missing, s.Key)
			}
		}
		r.Targets = append(r.Targets, info)
	}
	r.Warnings = report.Warnings
	for _, problem := range report.Problems {
		r.Problems = append(r.Problems, problem.Error())
	}
}

func (r *adapterReport) rows() [][]string {
	kind := r.method
	if r.RSLoRA {
		kind += ", rank-stabilized"
	}
	rows := [][]string{
		{"kind", fmt.Sprintf("%s of rank %d, alpha %v, dropout %v, init %s", kind, r.Rank, r.Alpha, r.Dropout, r.Init)},
		{"modules", r.Modules},
	}
	if r.Task != "" {
		rows = append(rows, []string{"task", r.Task})
	}
	if len(r.Classes) > 0 {
		rows = append(rows, classesRow(r.Classes, r.Problem))
	}
	if len(r.Parameters) > 0 {
		rows = append(rows, []string{"parameters", strings.Join(r.Parameters, ", ")})
	}
	if len(r.Saved) > 0 {
		rows = append(rows, []string{"saved", strings.Join(r.Saved, ", ")})
	}
	if r.Base != "" {
		rows = append(rows, []string{"base", r.Base})
	}
	for _, w := range r.Warnings {
		rows = append(rows, []string{"warning", oneLine(w)})
	}
	for _, p := range r.Problems {
		rows = append(rows, []string{"problem", oneLine(p)})
	}
	return rows
}

// printTargets prints the coverage, if known.
func (a *app) printTargets(r *adapterReport) {
	if len(r.Targets) == 0 {
		return
	}
	rows := [][]string{{"", "TARGET", "RANK", "SCALE", "IN", "OUT", ""}}
	for _, t := range r.Targets {
		state := "complete"
		if len(t.Missing) > 0 {
			state = "lacks " + strings.Join(t.Missing, ", ")
		}
		rows = append(rows, []string{"", t.Name, fmt.Sprint(t.Rank), fmt.Sprintf("%g", t.Scale), fmt.Sprint(t.In), fmt.Sprint(t.Out), state})
	}
	a.out.table(rows)
}
