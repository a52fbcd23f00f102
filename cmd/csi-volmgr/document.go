package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// jsonPathForm begins the form of output that names a template of its own, as
// kubectl has it: -o jsonpath='{.items[*].hostPath}'.
const jsonPathForm = "jsonpath="

// structured reports whether a form of output is for programs: the whole of a
// thing, or what a template takes from it.
func structured(form string) bool {
	return form == "json" || form == "yaml" || strings.HasPrefix(form, jsonPathForm)
}

// checkForm refuses a form of output that is neither structured nor in tables.
func checkForm(form string, tables ...string) error {
	if template, ok := strings.CutPrefix(form, jsonPathForm); ok {
		_, err := parseTemplate(template)
		return err
	}
	if !structured(form) && !slices.Contains(tables, form) {
		return usagef("unknown output %q: expected %s, json, yaml or jsonpath=TEMPLATE", form, strings.Join(tables, ", "))
	}
	return nil
}

func parseTemplate(template string) (*jsonpath.JSONPath, error) {
	if template == "" {
		return nil, usagef("-o jsonpath= without a template: expected one as jsonpath='{.items[*].name}'")
	}
	j := jsonpath.New("output")
	if err := j.Parse(template); err != nil {
		return nil, usagef("template %q: %v", template, err)
	}
	return j, nil
}

// document writes v in a structured form.
func (p *program) document(v any, form string) error {
	b, err := render(v, form)
	if err != nil {
		return err
	}
	return writeAll(p.stdout, string(b))
}

// render returns v in a structured form. A template writes what it finds and no
// end of line of its own; a field that is not there is an error, as a typing
// error would otherwise be an empty answer.
func render(v any, form string) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	template, isTemplate := strings.CutPrefix(form, jsonPathForm)
	switch {
	case form == "yaml":
		return yaml.JSONToYAML(b)
	case !isTemplate:
		return append(b, '\n'), nil
	}
	j, err := parseTemplate(template)
	if err != nil {
		return nil, err
	}
	var plain any // by the names of JSON, which are those of the documents
	if err := json.Unmarshal(b, &plain); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := j.Execute(&out, plain); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
