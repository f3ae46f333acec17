<?php
declare(strict_types=1);

namespace App\Form;

use InvalidArgumentException;

final class ContactForm
{
    private array $fields = [];

    public function set(string $name, string $value): self
    {
        if ($name === '') {
            throw new InvalidArgumentException('a field needs a name');
        }
        $this->fields[$name] = htmlspecialchars($value, ENT_QUOTES);
        return $this;
    }

    public function render(): string
    {
        $html = '<form method="post">';
        foreach ($this->fields as $name => $value) {
            $html .= sprintf('<input name="%s" value="%s">', $name, $value);
        }
        return $html . '</form>';
    }
}

echo (new ContactForm())->set('mail', $_POST['mail'] ?? '')->render();
